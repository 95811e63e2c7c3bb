#!lua
-- Turns what was written under a board's store keys into a board. Before that, no client can see it.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] journal — stream: what SQL does not hold yet
-- Request: RestoreRequest
-- Returns {'ok'}
--         {'epoch', epoch} — there is a board
local request = cmsgpack.unpack(ARGV[1])
local reign = ARGV[2] or ''
local meta, journal = unpack(KEYS)
--@include clock
--@include reign
--@include board
--@include journal
local board = read_board()
if board.epoch then return {'epoch', board.epoch} end
call('HSET', meta, 'epoch', request.epoch, 'shape', request.shape, 'offset', request.offset, 'secret', request.secret,
  unpack(request.fields))
if reign ~= '' then call('HSET', meta, 'reign', reign) end
if request.made then call('HSET', meta, 'made', 1, 'used', digits(now)) end
board.journal = request.link .. ' 0'
append(board, request.offset .. '-1', 'renew', '-', 0, request.parent)
call('HSET', meta, 'journal', board.journal)
return {'ok'}
