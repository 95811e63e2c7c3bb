#!lua flags=allow-oom
-- Moves a calendar board on to its newest period, or drops a whole period that the board no longer keeps.
--
-- Deleting a period of a million members takes long. So a dropped period gets other names, and `discard.lua` deletes it
-- in steps when nothing is due.
-- KEYS meta, slots, dropped
-- KEYS old... — all store keys of the period to drop, and then their new names
-- Request: RotatePeriodRequest
-- Returns {'dropped', key} — this store key has to be deleted first
--         {'moved'} — the script moved the board on, or deleted a period: call it again
--@include due
--@include ruled
refusal = not_due(board, true)
if refusal then return refusal end

-- The same period may have been dropped before, if the board was changed to keep more periods in between. Then the rest
-- of that one goes first.
for i = 4 + (#KEYS - 3) / 2, #KEYS do
  if call('EXISTS', KEYS[i]) == 1 then return {'dropped', KEYS[i]} end
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
      call('SADD', dropped, KEYS[i + count])
    end
  end
  call('ZREM', slots, start)
  call('HDEL', meta, 'total:' .. start, 'high:' .. start)
  commit(board)
end
return {'moved'}
