#!lua flags=allow-oom
-- Gives a board a new epoch and keeps its data, so that positions of the old epoch are no longer valid.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] journal — stream of the new epoch: what SQL does not hold yet
-- Request: RenewRequest
-- Returns {'ok', offset}
--         {'none'} — there is no board
local request = cmsgpack.unpack(ARGV[1])
local meta, journal = unpack(KEYS)
--@include clock
--@include board
--@include journal
local board = read_board()
if not board.epoch then return {'none'} end
local parent = board.epoch
board.epoch = request.epoch
announce(board)
if board.journal then append(board, board.place .. '-0', 'renew', '-', 0, parent) end
return {'ok', commit(board, 'epoch', request.epoch)}
