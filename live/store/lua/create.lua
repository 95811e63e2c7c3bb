#!lua
-- Creates a board, unless the store holds something under its id.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] journal — stream: what SQL does not hold yet
-- Request: CreateRequest
-- Returns {'ok'}
--         {'epoch', epoch, made} — there is a board; made is '1' when it was created at run time, and else ''
local packed = ARGV[1]
local request = cmsgpack.unpack(packed)
local reign = ARGV[2] or ''
local meta, journal = unpack(KEYS)
--@include clock
--@include reign
--@include board
--@include journal
local board = read_board()
if board.epoch then return {'epoch', board.epoch, board.made or ''} end
call('HSET', meta, 'epoch', request.epoch, 'shape', request.shape, 'offset', 0, 'total', 0, 'secret', request.secret,
  'began', digits(now))
if reign ~= '' then call('HSET', meta, 'reign', reign) end
if request.made then call('HSET', meta, 'made', 1, 'used', digits(now)) end
if request.journal then
  board.journal = '0-0 0 - 0 0'
  append(board, '0-1', 'begin', '-', 0, packed)
  call('HSET', meta, 'journal', board.journal)
end
return {'ok'}
