#!lua flags=allow-oom
-- Moves a calendar board on to its newest period, or drops a whole period that the board no longer keeps.
--
-- Deleting a period of a million members takes long. So a dropped period gets other names, and `discard.lua` deletes it
-- in steps.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] slots — sorted set: the start of every slot, scored by itself
-- KEYS[3] dropped — set: the starts of periods that are not deleted completely
-- KEYS[4...] old — all store keys of the period to drop, and then their new names
-- Request: RotatePeriodRequest
-- Returns {'idle', wait} — nothing is due or left; wait is the time until something can be due, in milliseconds, or -1 when
--         that depends on the next event
--         {'dropped', start} — this dropped period is left to delete, and nothing else can be done before that
--         {'slot', start} — this period is the oldest: call again with its store keys
--         {'moved'} — the script moved the board on, or deleted a period: call it again
--         {'epoch', epoch} — the board has another epoch; '' if there is no board
--         {'replan', newest, now, latest} — the caller is wrong about the board's clock
--         {'reign', offset, link, epoch, resending} — nobody has checked the board after a failover; see `lib/reign`
local request = cmsgpack.unpack(ARGV[1])
local reign = ARGV[2] or ''
local meta, slots, dropped = KEYS[1], KEYS[2], KEYS[3]
--@include clock
--@include reign
--@include board
--@include due
local board, refusal = open_board()
refusal = refusal or not_due(board, true)
if refusal then
  local left = refusal[1] == 'idle' and call('SRANDMEMBER', dropped)
  return left and {'dropped', left} or refusal
end

-- The same period may have been dropped before, because the clock was set back. Then the rest of that one goes first.
for i = 4 + (#KEYS - 3) / 2, #KEYS do
  if call('EXISTS', KEYS[i]) == 1 then return {'dropped', request.start} end
end
announce(board)
if board.newest ~= request.clock.current then
  commit(board, 'newest', request.clock.current)
else
  local start = digits(request.start)
  local count = (#KEYS - 3) / 2
  for i = 4, 3 + count do
    if call('EXISTS', KEYS[i]) == 1 then
      call('RENAME', KEYS[i], KEYS[i + count])
      call('SADD', dropped, start)
    end
  end
  call('ZREM', slots, start)
  call('HDEL', meta, 'total:' .. start, 'high:' .. start)
  commit(board)
end
return {'moved'}
