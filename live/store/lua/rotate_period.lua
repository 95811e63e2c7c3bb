#!lua flags=allow-oom
-- Passes a calendar board on to its newest period, or drops one period that is kept no longer, as a whole.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] slots — sorted set: start of every slot there is, scored by itself
-- KEYS[3...] old — all keys of the period to drop
-- Request: RotatePeriodRequest
-- Returns {'idle', wait} — nothing is due; wait is milliseconds until something can be, -1 when only an event can tell
--         {'slot', start} — this period is the oldest: call again with its keys
--         {'moved'} — call again
--         {'epoch', epoch} — the board has another epoch; '' for none
--         {'replan', newest, now, latest} — the caller is wrong about the board's clock
local request = cmsgpack.unpack(ARGV[1])
local meta, slots = KEYS[1], KEYS[2]
--@include clock
--@include board
--@include due
local board, refusal = open_board()
refusal = refusal or not_due(board, true)
if refusal then return refusal end

announce(board)
if board.newest ~= request.clock.current then
  commit(board, 'newest', request.clock.current)
else
  local start = digits(request.start)
  for i = 3, #KEYS do call('UNLINK', KEYS[i]) end
  call('ZREM', slots, start)
  call('HDEL', meta, 'total:' .. start, 'high:' .. start, 'volume:' .. start)
  commit(board)
end
return {'moved'}
