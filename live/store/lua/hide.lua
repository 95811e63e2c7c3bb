#!lua flags=allow-oom
-- Takes a member out of every ranking of its board, or puts it back with the sum of its values in the slots.
--
-- The board still counts a hidden member. The member has no rank and no part in the total, and keeps its place among
-- ties. If a ranking has filled up in between, the last record is dropped when a hidden member returns.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] slots — sorted set: the start of every slot, scored by itself
-- KEYS[3] hidden — hash: the members without a rank
-- KEYS[4] journal — stream: what SQL does not hold yet
-- KEYS[5] reached — hash: member, tag, of the only ranking
-- KEYS[6...] parts — for each slot, at the indexes in the request: slot, ranking, reached, levels, metadata
-- Request: HideRequest
-- Returns {'ok', offset}
--         {'slots'} — the slots have changed: ask again with their new store keys
--         {'epoch', epoch} — the board has another epoch; '' if there is no board
--         {'reign', offset, link, epoch, resending} — nobody has checked the board after a failover; see `lib/reign`
local packed = ARGV[1]
local request = cmsgpack.unpack(packed)
local reign = ARGV[2] or ''
local meta, slots, hidden, journal, reached = unpack(KEYS, 1, 5)
--@include clock
--@include reign
--@include board
--@include ranking
--@include journal
--@include same_slots
local board, refusal = open_board()
if refusal then return refusal end
local parts, starts = request.slots or {}, {}
for i, part in ipairs(parts) do starts[i] = part.start end
if not same_slots(starts) then return {'slots'} end
local member, hide = request.member, request.hide
if (call('HEXISTS', hidden, member) == 1) == (hide == true) then return {'ok', digits(board.offset)} end

-- While all amounts of a sliding window cancel each other out, it has no slot, and no member has a score.
local has_tag = #parts == 0 and rules.ties and call('HEXISTS', reached, member) == 1
announce(board)
record(board, 'hide')
if hide then call('HSET', hidden, member, 1) else call('HDEL', hidden, member) end

-- Records in the journal that the member has no tag. The journal may still have an earlier tag, because it does not see
-- when amounts cancel out.
local function untag(suffix)
  if rules.ties then granted[#granted + 1] = {suffix, member, 0, 0} end
end

local rankings, held = {}, {}
if #parts == 0 then untag('') end
if has_tag then call('HDEL', reached, member) end
for _, part in ipairs(parts) do
  local suffix, ranking = part.suffix, {suffix = part.suffix}
  ranking.slot, ranking.key, ranking.reached, ranking.levels, ranking.metadata = unpack(KEYS, part.keys, part.keys + 4)
  local value = call('HGET', ranking.slot, member)
  if not held[suffix] then rankings[#rankings + 1], held[suffix] = ranking, {} end
  if value then held[suffix].score = (held[suffix].score or 0) + tonumber(value) end
end
for _, ranking in ipairs(rankings) do
  local score = held[ranking.suffix].score
  if hide or score == 0 and zero_is_none then score = nil end
  local names, old = look_up(ranking, {member})
  if hide and names[1] == '' then untag(ranking.suffix) end
  put(ranking, board, {member}, names, old, {score}, nil, hide)
  if score and rules.cap then trim(ranking, board, ranking.slot) end
end
record_tags(board, granted)
return {'ok', commit(board)}
