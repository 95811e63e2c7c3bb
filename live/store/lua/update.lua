#!lua flags=allow-oom
-- Applies a new revision of a board's definition, and announces the change.
-- KEYS[1] meta — hash: the board's state
-- Request: UpdateRequest
-- Returns {'ok', offset}
--         {'epoch', epoch} — the board has another epoch; '' if there is no board
--         {'reign', offset, link, epoch, resending} — nobody has checked the board after a failover; see `lib/reign`
local request = cmsgpack.unpack(ARGV[1])
local reign = ARGV[2] or ''
local meta = KEYS[1]
--@include reign
--@include board
local board, refusal = open_board()
if refusal then return refusal end
local revision = tonumber(call('HGET', meta, 'revision') or 0)
if revision >= request.revision then return {'ok', string.format('%.0f', board.offset)} end

announce(board)
if request.frozen then call('HSET', meta, 'frozen', 1) else call('HDEL', meta, 'frozen') end
return {'ok', commit(board, 'revision', request.revision)}
