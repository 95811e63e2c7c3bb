#!lua
-- Creates a board, unless the store holds something under its id.
-- KEYS[1] meta — hash: the board's state
-- Request: CreateRequest
-- Returns {'ok'}
--         {'epoch', epoch, made} — there is a board; made is '1' when it was created at run time, and else ''
local request = cmsgpack.unpack(ARGV[1])
local meta = KEYS[1]
--@include clock
--@include board
local board = read_board()
if board.epoch then return {'epoch', board.epoch, board.made or ''} end
call('HSET', meta, 'epoch', request.epoch, 'shape', request.shape, 'offset', 0, 'total', 0, 'secret', request.secret)
if request.made then call('HSET', meta, 'made', 1, 'used', digits(now)) end
return {'ok'}
