#!lua
-- Corrects values of a board: in the store, or in the journal, which learns from the entry what the store holds.
--
-- A correction of a number that adds up is an increment, so it is right whatever was counted since the comparison. Any
-- other value is only replaced if it is still the one that was compared. Like a batch, a correction has a number, is an
-- entry of the journal, and is announced to viewers.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] slots — sorted set: the start of every slot, scored by itself
-- KEYS[3] writers — hash: writer, "sequence offset seconds" of its last request
-- KEYS[4] hidden — hash: the members without a rank
-- KEYS[5] journal — stream: what SQL does not hold yet
-- KEYS[6] held — what is corrected: a slot, `reached`, or any other hash; or the log, a sorted set
-- KEYS[7] ranking — sorted set: name, score
-- KEYS[8] reached — hash: member, tag
-- KEYS[9] levels — sorted set: each score in the ranking
-- KEYS[10...] others — the hashes of the other slots of the ranking, if a slot is corrected
-- Request: MendRequest
-- Returns {'ok', offset} — now, or when this correction was applied before
--         {'epoch', epoch} — the board has another epoch; '' for none
--         {'stale'} — a later request of this writer was applied
--         {'moved', newest} — the board has another newest slot, '' for none, or other slots: look again
--         {'mended'} — another writer has corrected the board since the comparison: compare again
--         {'changed', i, ...} — these values, from 1, have changed since the comparison, or would leave the range
local packed = ARGV[1]
local request = cmsgpack.unpack(packed)
local meta, slots, writers, hidden, journal, held, ranking, reached, levels = unpack(KEYS, 1, 9)
local others = {}
for i = 10, #KEYS do others[i - 9] = KEYS[i] end
--@include clock
--@include board
--@include ranking
--@include journal
--@include same_slots
local board, refusal = open_board()
if refusal then return refusal end
--@include numbered
local writer, mended = string.match(call('HGET', meta, 'mended') or '- 0', '^(.*) (%d+)$')
if writer ~= request.writer and tonumber(mended) > request.compared then return {'mended'} end
if board.newest ~= request.newest or request.starts and not same_slots(request.starts) then
  return {'moved', board.newest and digits(board.newest) or ''}
end

local kind, names, amounts, seen = request.kind, request.names, request.amounts, request.seen
local current = call(kind == 'log' and 'ZMSCORE' or 'HMGET', held, unpack(names))
local values, changed = request.values, {'changed'}
if amounts then values = {} end
for i = 1, #names do
  local value = current[i] or ''
  if amounts then
    local sum = (tonumber(value) or 0) + (request.teach and 0 or amounts[i])
    values[i] = sum ~= 0 and digits(sum) or ''
    if math.abs(sum) > EXACT then changed[#changed + 1] = i end
  elseif value ~= seen[i] and not (kind == 'log' and tonumber(value) and tonumber(value) == tonumber(seen[i])) then
    changed[#changed + 1] = i
  end
end
if #changed > 1 then return changed end

announce(board)
record(board, 'mend', request.writer, request.sequence)
--@include correct
if not request.teach then correct() end
local offset = commit(board, 'mended', request.writer .. ' ' .. board.place)
call('HSET', writers, request.writer, request.sequence .. ' ' .. offset .. ' ' .. time[1])
return {'ok', offset}
