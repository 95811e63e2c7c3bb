#!lua flags=allow-oom
-- Deletes a piece of a store key that no other script uses.
-- KEYS listed — set: store keys that are not deleted completely
-- KEYS old — the store key to delete
-- Request: DiscardRequest
-- Returns {'left', cursor} — the store key has more elements: call it again with this cursor
--         {'moved'} — the store key is deleted
--@include discard
local left = discard_all({old}, request.count, request.cursor)
if left then return {'left', left} end
redis.call('SREM', listed, old)
return {'moved'}
