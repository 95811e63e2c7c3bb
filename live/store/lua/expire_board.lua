#!lua flags=allow-oom
-- Expires a board that nobody has used for a while. Without its state no script changes the board any more.
-- KEYS meta, gone
-- Request: ExpireBoardRequest
-- Returns {'left'} — the board has expired, now or before
--         {'used', wait} — the board is in use; wait is the time until it can expire, in milliseconds
if redis.call('EXISTS', meta) == 0 then return {'left'} end
--@include opened
local wait = tonumber(call('HGET', meta, 'used') or 0) + request.idle - store_now
if wait > 0 then return {'used', digits(wait)} end
call('RENAME', meta, gone)
return {'left'}
