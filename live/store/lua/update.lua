#!lua flags=allow-oom
-- Applies a new revision of a board's definition, and announces the change.
-- KEYS meta
-- Request: UpdateRequest
-- Returns {'ok', offset}
--@include opened
local revision = tonumber(call('HGET', meta, 'revision') or 0)
if revision >= request.revision then return {'ok', string.format('%.0f', board.offset)} end

announce(board)
if request.frozen then call('HSET', meta, 'frozen', 1) else call('HDEL', meta, 'frozen') end
return {'ok', commit(board, 'revision', request.revision)}
