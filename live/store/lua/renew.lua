#!lua flags=allow-oom
-- Gives a board a new epoch and keeps its data, so that positions of the old epoch are no longer valid.
--
-- Its journal ends: SQL may have entries that the board lacks by now. The journal of the new epoch has to begin with
-- everything that the board holds. Until then, `parent` keeps the old epoch and the last entry of the old journal.
-- KEYS[1] meta — hash: the board's state
-- Request: RenewRequest
-- Returns {'ok', offset, journaled} — journaled is '1' if a journal has to begin, and else ''
--         {'none'} — there is no board
local request = cmsgpack.unpack(ARGV[1])
local reign = ARGV[2] or ''
local meta = KEYS[1]
--@include clock
--@include reign
--@include board
local board = read_board()
if not board.epoch then return {'none'} end
local parent = board.epoch
board.epoch = request.epoch
announce(board)
if reign ~= '' then call('HSET', meta, 'reign', reign) end
if board.journal then
  call('HSET', meta, 'parent', parent .. ' ' .. string.match(board.journal, '^(.*) %d+$'))
  call('HDEL', meta, 'journal', 'drained', 'safe', 'resending')
end
local offset = commit(board, 'epoch', request.epoch)
return {'ok', offset, call('HEXISTS', meta, 'parent') == 1 and '1' or ''}
