#!lua flags=allow-oom
-- Deletes the item of a member.
-- KEYS items, items_version, items_changes
-- Request: DeleteItemRequest
-- Returns {'ok'}
redis.call('HDEL', items, request.member)
redis.call('LPUSH', items_changes, string.format('%.0f %s', redis.call('INCR', items_version), request.member))
redis.call('LTRIM', items_changes, 0, request.changes - 1)
return {'ok'}
