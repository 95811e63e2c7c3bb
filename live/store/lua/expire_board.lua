#!lua flags=allow-oom
-- Expires a board that nobody has used for a while. Without its state no script changes the board any more.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] gone — hash: the state of a deleted board
-- Request: ExpireBoardRequest
-- Returns {'left'} — the board has expired, now or before
--         {'used', wait} — the board is in use; wait is the time until it can expire, in milliseconds
--         {'epoch', epoch} — the board has another epoch
--         {'reign', offset, link, epoch, resending} — nobody has checked the board after a failover; see `lib/reign`
local request = cmsgpack.unpack(ARGV[1])
local reign = ARGV[2] or ''
local meta, gone = KEYS[1], KEYS[2]
--@include clock
--@include reign
--@include board
if call('EXISTS', meta) == 0 then return {'left'} end
local _, refusal = open_board()
if refusal then return refusal end
local wait = tonumber(call('HGET', meta, 'used') or 0) + request.idle - now
if wait > 0 then return {'used', digits(wait)} end
call('RENAME', meta, gone)
return {'left'}
