#!lua
-- Creates a board, unless the store holds something under its id. What was written under its store keys before, which
-- no client can see, becomes its contents.
-- KEYS meta, journal
-- Request: CreateRequest
-- Returns {'ok'}
--         {'epoch', epoch} — there is a board
--@include journal
local board = read_board()
if board.epoch then return {'epoch', board.epoch} end
local past = request.past or {link = '0-0 0 - 0', offset = '0', fields = {}}
set_clock(string.match(past.link, '^%S+ (%d+)'))  -- the clock goes on from the last entry
call('HSET', meta, 'epoch', request.epoch, 'shape', request.shape, 'offset', past.offset, 'total', 0,
  'secret', request.secret, 'began', digits(now), 'used', digits(store_now), 'clock', digits(micros),
  unpack(past.fields))
if reign ~= '' then call('HSET', meta, 'reign', reign) end
if request.journal then
  board.journal = past.link .. ' 0'
  append(board, past.offset .. '-1', past.parent and 'renew' or 'begin', '-', 0, past.parent or packed)
  call('HSET', meta, 'journal', board.journal)
end
return {'ok'}
