#!lua flags=allow-oom
-- Records that a board was checked under the reign of this server, and at which offset this reign began. Clients see
-- another epoch from then on. A swap that goes on ends: this server may lack some of what was loaded beside the board.
--
-- `safe` is the offset up to which SQL has the journal. If it is above the board's offset, the script lowers it.
-- KEYS meta
-- Request: ConfirmRequest
-- Returns {'ok'} — the board is checked, now or before
--         {'reign', offset, link, epoch, behind} — the script has recorded nothing: the board is at another offset than
--         the one that was checked, or somebody writes what a failover lost
--@include board
local board, refusal = open_board()
if board then return {'ok'} end
if refusal[1] == 'epoch' or refusal[2] ~= request.offset or refusal[5] ~= '' then return refusal end

board = read_board()
local safe, offset = tonumber(call('HGET', meta, 'safe')), board.offset
announce(board)
call('HDEL', meta, 'swap', 'paused')
if safe and safe > offset then call('HSET', meta, 'safe', string.format('%.0f', offset)) end
commit(board, 'reign', reign, 'reign_from', request.offset)
return {'ok'}
