#!lua flags=allow-oom
-- Gives a board a new epoch and keeps its data, so that positions of the old epoch are no longer valid.
--
-- Its journal ends: SQL may have entries that the board lacks by now. The journal of the new epoch has to begin with
-- everything that the board holds. Until then, `parent` keeps the old epoch and the last entry of the old journal.
-- KEYS meta
-- Request: RenewRequest
-- Returns {'ok', offset, journaled} — journaled is '1' if a journal has to begin, and else ''
--         {'none'} — there is no board
--         {'behind'} — the board holds a part of what a failover lost
--@include board
local board = read_board()
if not board.epoch then return {'none'} end
if board.reign == 'behind' then return {'behind'} end
local parent = board.epoch
board.epoch = request.epoch
announce(board)
if reign ~= '' then call('HSET', meta, 'reign', reign) end
call('HDEL', meta, 'edition', 'swap', 'paused')
if board.journal then
  call('HSET', meta, 'parent', parent .. ' ' .. string.match(board.journal, '^(.*) %d+$'))
  call('HDEL', meta, 'journal', 'drained', 'safe')
end
local offset = commit(board, 'epoch', request.epoch)
return {'ok', offset, call('HEXISTS', meta, 'parent') == 1 and '1' or ''}
