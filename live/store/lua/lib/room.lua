-- Whether there is room for a batch. A slot that holds some member of the batch exists, and only members that are new
-- in it need room.
local most_members = request.most_members

-- New slots have to wait until rotation has subtracted old ones.
local function too_many_slots()
  local new = 0
  for i = 1, request.most_slots and #groups or 0 do
    if groups[i].fresh == #groups[i].members then new = new + 1 end
  end
  if new == 0 or call('ZCARD', slots) + new <= request.most_slots then return end
  for i = 1, #groups do
    if groups[i].fresh == #groups[i].members and call('ZSCORE', slots, groups[i].start) then new = new - 1 end
  end
  if call('ZCARD', slots) + new > request.most_slots then return {'behind'} end
end

-- Whether some members may find no room, if none of those that are new in a slot is ranked yet.
local function may_be_full()
  local coming = {}
  for i = 1, #groups do
    local group = groups[i]
    local suffix, fresh = group.suffix, group.fresh
    if fresh > 0 then
      coming[suffix] = (coming[suffix] or 0) + fresh
      if call('HLEN', group.slot) + fresh > most_members
        or call('ZCARD', group.ranking.key) + coming[suffix] > most_members then
        return true
      end
    end
  end
end

-- The first members that neither their slot nor their ranking holds get the room that is left.
local function no_room()
  if not may_be_full() then return end
  local away, admitted, taken_in = {'crowded'}, {}, {}
  for i = 1, #groups do
    local group = groups[i]
    local members, ranking, suffix = group.members, group.ranking, group.suffix
    local here = rules.ties and call('HMGET', ranking.reached, unpack(members))
      or call('ZMSCORE', ranking.key, unpack(members))
    local ranked, held = call('ZCARD', ranking.key) + (taken_in[suffix] or 0), call('HLEN', group.slot)
    for j, member in ipairs(members) do
      if not group.olds[j] and not here[j] and not admitted[suffix .. ' ' .. member] then
        if ranked < most_members and held < most_members then
          admitted[suffix .. ' ' .. member] = true
          taken_in[suffix] = (taken_in[suffix] or 0) + 1
          ranked, held = ranked + 1, held + 1
        else
          away[#away + 1], away[#away + 2] = digits(group.start), member
        end
      end
    end
  end
  if #away > 1 then return away end
end
