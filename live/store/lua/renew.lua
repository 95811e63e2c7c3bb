#!lua flags=allow-oom
-- Gives a board a new epoch and keeps its data, so that positions of the old epoch are no longer valid.
-- KEYS[1] meta — hash: the board's state
-- Request: RenewRequest
-- Returns {'ok', offset}
--         {'none'} — there is no board
local request = cmsgpack.unpack(ARGV[1])
local meta = KEYS[1]
--@include board
local board = read_board()
if not board.epoch then return {'none'} end
board.epoch = request.epoch
announce(board)
return {'ok', commit(board, 'epoch', request.epoch)}
