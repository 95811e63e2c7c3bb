#!lua flags=allow-oom
-- Deletes a piece of a period that a calendar board has dropped. No other script uses its store keys.
-- KEYS[1] dropped — set: the starts of periods that are not deleted completely
-- KEYS[2...] old — the store keys of the period, under their new names
-- Request: DiscardRequest
-- Returns {'left', cursor} — the period has more elements: call it again with this cursor
--         {'moved'} — the period is deleted
local request = cmsgpack.unpack(ARGV[1])
local dropped = KEYS[1]
--@include discard
local left = discard_all({unpack(KEYS, 2)}, request.count, request.cursor)
if left then return {'left', left} end
redis.call('SREM', dropped, request.start)
return {'moved'}
