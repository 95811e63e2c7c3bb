-- Step: refuse members for which there is no room. Only members that are new in a slot need room. A slot can be
-- new only if all its members in the batch are new. A member that gets everything of another one takes its room.
if all_fresh > 0 and not batch.since then
  local most_members, most_slots = request.most_members, request.most_slots

  -- New slots have to wait until rotation has subtracted old slots.
  local new, coming, may_be_full = 0, {}, false
  for i = 1, #groups do
    local group = groups[i]
    local suffix, fresh = group.suffix, group.fresh
    if fresh == #group.members then new = new + 1 end
    if fresh > 0 then
      coming[suffix] = (coming[suffix] or 0) + fresh
      if call('HLEN', group.slot) + fresh > most_members
        or call('ZCARD', group.ranking.key) + coming[suffix] > most_members then
        may_be_full = true
      end
    end
  end
  if most_slots and new > 0 and call('ZCARD', slots) + new > most_slots then
    for i = 1, #groups do
      if groups[i].fresh == #groups[i].members and call('ZSCORE', slots, groups[i].start) then new = new - 1 end
    end
    if call('ZCARD', slots) + new > most_slots then return {'behind'} end
  end

  -- The room that is left goes to the first members that are neither in their slot nor in their ranking.
  local away, admitted, taken_in = {'crowded'}, {}, {}
  for i = 1, may_be_full and #groups or 0 do
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
