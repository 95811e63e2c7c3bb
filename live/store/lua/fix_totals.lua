#!lua
-- Sets the stored total of a ranking, if the board is still at the offset at which the total was counted.
-- KEYS[1] meta — hash: the board's state
-- Request: FixTotalsRequest
-- Returns {'ok', offset}
--         {'moved', offset} — the board has changed
--         {'reign', offset, link, epoch, resending} — nobody has checked the board after a failover; see `lib/reign`
local request = cmsgpack.unpack(ARGV[1])
local reign = ARGV[2] or ''
local meta = KEYS[1]
--@include reign
--@include board
local board = read_board()
local refused = unchecked(board.reign)
if refused then return refused end
if board.offset ~= request.offset then return {'moved', string.format('%.0f', board.offset)} end
announce(board)
return {'ok', commit(board, 'total' .. request.suffix, request.total, 'high' .. request.suffix, request.high)}
