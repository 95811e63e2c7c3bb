#!lua flags=allow-oom
-- Records that a board was checked under the reign of this server. Clients see another epoch from then on.
--
-- `safe` is the offset up to which SQL has the journal. If it is above the board's offset, the script lowers it.
-- KEYS[1] meta — hash: the board's state
-- Request: ConfirmRequest
-- Returns {'ok'} — the board is checked, now or before
--         {'reign', offset, link, epoch, resending} — the script has recorded nothing: the board is at another offset
--         than the one that was checked, or somebody sends again what a failover lost
--         {'epoch', epoch} — the board has another epoch; '' if there is no board
local request = cmsgpack.unpack(ARGV[1])
local reign = ARGV[2] or ''
local meta = KEYS[1]
--@include reign
--@include board
local board, refusal = open_board()
if board then return {'ok'} end
if refusal[1] == 'epoch' or refusal[2] ~= request.offset or refusal[5] ~= '' then return refusal end

board = read_board()
local safe, offset = tonumber(call('HGET', meta, 'safe')), board.offset
announce(board)
if safe and safe > offset then call('HSET', meta, 'safe', string.format('%.0f', offset)) end
commit(board, 'reign', reign)
return {'ok'}
