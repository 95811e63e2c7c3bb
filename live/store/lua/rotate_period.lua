#!lua flags=allow-oom
-- Moves a calendar board on to its newest period, or deletes a whole period that the board no longer keeps.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] slots — sorted set: the start of every slot, scored by itself
-- KEYS[3...] old — all store keys of the period to delete
-- Request: RotatePeriodRequest
-- Returns {'idle', wait} — nothing is due; wait is the time until something can be due, in milliseconds, or -1 when
--         that depends on the next event
--         {'slot', start} — this period is the oldest: call again with its store keys
--         {'moved'} — the script moved the board on, or deleted a period: call it again
--         {'epoch', epoch} — the board has another epoch; '' if there is no board
--         {'replan', newest, now, latest} — the caller is wrong about the board's clock
--         {'reign', offset, link, epoch, resending} — nobody has checked the board after a failover; see `lib/reign`
local request = cmsgpack.unpack(ARGV[1])
local reign = ARGV[2] or ''
local meta, slots = KEYS[1], KEYS[2]
--@include clock
--@include reign
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
  call('HDEL', meta, 'total:' .. start, 'high:' .. start)
  commit(board)
end
return {'moved'}
