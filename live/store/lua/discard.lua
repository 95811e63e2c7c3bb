#!lua flags=allow-oom
-- Deletes a piece of a period that a calendar board has dropped. No other script uses its store keys.
-- KEYS[1] dropped — set: the starts of periods that are not deleted completely
-- KEYS[2...] old — the store keys of the period, under their new names
-- Request: DiscardRequest
-- Returns {'moved'} — call it again, or look for the next period
local request = cmsgpack.unpack(ARGV[1])
local dropped = KEYS[1]
--@include discard
if not discard_all({unpack(KEYS, 2)}, request.count) then redis.call('SREM', dropped, request.start) end
return {'moved'}
