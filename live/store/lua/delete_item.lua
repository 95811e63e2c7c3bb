#!lua flags=allow-oom
-- Deletes the item of a member.
-- KEYS[1] items — hash: member, its item as JSON
-- KEYS[2] version — string: grows with every change
-- KEYS[3] changes — list: "version member" of each of the last changes, newest first
-- Request: DeleteItemRequest
-- Returns {'ok'}
local request = cmsgpack.unpack(ARGV[1])
local items, version, changes = unpack(KEYS)
redis.call('HDEL', items, request.member)
redis.call('LPUSH', changes, string.format('%.0f %s', redis.call('INCR', version), request.member))
redis.call('LTRIM', changes, 0, request.changes - 1)
return {'ok'}
