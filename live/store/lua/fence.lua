#!lua flags=allow-oom
-- Keeps all processes from using a board that lacks entries of its journal, until `mend.lua` ends this.
--
-- While the field `reign` of the state is 'behind', `lib/reign.lua` refuses the board under every reign.
-- KEYS meta
-- Request: FenceRequest
-- Returns {'ok'}
--         {'moved', link} — the journal has another last entry
--         {'epoch', epoch} — the board has another epoch; '' if there is no board
local held = redis.call('HMGET', meta, 'epoch', 'journal')
if held[1] ~= request.epoch then return {'epoch', held[1] or ''} end
local link = string.match(held[2] or '', '^(.*) %d+$') or ''
if link ~= request.link then return {'moved', link} end
redis.call('HSET', meta, 'reign', 'behind', 'swap', request.swap)
redis.call('HDEL', meta, 'paused')
return {'ok'}
