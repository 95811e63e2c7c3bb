#!lua
-- Makes the journal's last entry that of a fenced board, whose store keys hold by now what the journal says.
--
-- Afterwards, the board waits for the check of its reign, like every board after a failover.
-- KEYS meta, baseline
-- Request: MendRequest
-- Returns {'ok', offset}
--         {'taken'} — the board is not fenced any more, or for another process
--@include board
local board = read_board()
local swap = call('HGET', meta, 'swap')
if board.epoch ~= request.epoch or board.reign ~= 'behind' or swap ~= request.swap then return {'taken'} end
set_clock(request.clock)
board.offset = math.max(board.offset, request.offset)
announce(board)
if request.swapped then call('UNLINK', baseline) end  -- it is of other contents
call('HDEL', meta, 'reign', 'swap')
--@include no_totals
local fields = request.fields
for i = 1, #fields, 2 do  -- rotation may have moved the board on
  if fields[i] == 'newest' then fields[i + 1] = digits(math.max(fields[i + 1], board.newest or fields[i + 1])) end
end
local gained = digits(board.gained + (request.gained or 0))
return {'ok', commit(board, 'used', digits(store_now), 'gained', gained, unpack(fields))}
