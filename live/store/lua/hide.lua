#!lua flags=allow-oom
-- Takes a member out of every ranking of its board, or puts it back with the sum of its values in the slots.
--
-- The board still counts a hidden member. The member has no rank and no part in the total, and keeps its place among
-- ties. If a ranking has filled up in between, the last record is dropped when a hidden member returns.
-- KEYS meta, slots, hidden, journal
-- KEYS parts... — see `rankings_of`
-- Request: HideRequest
-- Returns {'ok', offset}
local rules = request.rules
--@include ranking
--@include journal
--@include rankings
--@include ruled
local starts = request.starts or {}
if not same_slots(starts) then return {'slots'} end
local rankings = rankings_of(KEYS, 5, starts, request.tables)
local member, hide = request.member, request.hide
if (call('HEXISTS', hidden, member) == 1) == (hide == true) then return {'ok', digits(board.offset)} end

-- While all amounts of a sliding window cancel each other out, it has no slot, and no member has a score.
local only = #starts == 0 and rankings[1]
local has_tag = only and rules.ties and call('HEXISTS', only.reached, member) == 1
announce(board)
record(board, 'hide')
if hide then call('HSET', hidden, member, 1) else call('HDEL', hidden, member) end

-- Records in the journal that the member has no tag. The journal may still have an earlier tag, because it does not see
-- when amounts of several slots cancel out.
local function untag()
  if rules.told then granted[#granted + 1] = {member, 0, 0} end
end

if #starts == 0 then untag() end
if has_tag then call('HDEL', only.reached, member) end
for _, ranking in ipairs(rankings) do
  for _, slot in ipairs(ranking.slots) do
    local value = call('HGET', slot, member)
    if value then ranking.score = (ranking.score or 0) + tonumber(value) end
  end
end
for _, ranking in ipairs(#starts > 0 and rankings or {}) do
  local score = ranking.score
  if hide or score == 0 and zero_is_none then score = nil end
  local names, old = look_up(ranking, {member})
  if hide and names[1] == '' then untag() end
  put(ranking, board, {member}, names, old, {score}, nil, hide)
  if score and rules.cap then trim(ranking, board, ranking.slots[1]) end
end
record_tags(board, granted)
return {'ok', commit(board)}
