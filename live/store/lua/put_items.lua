#!lua
-- Stores items, or none of them if there is no room for the new ones.
-- KEYS items, items_version, items_changes
-- Request: PutItemsRequest
-- Returns {'ok'}
--         {'full'} — there would be more items than allowed
local members, texts, fields, new = request.members, request.items, {}, 0
for i = 1, #members do
  if redis.call('HEXISTS', items, members[i]) == 0 then new = new + 1 end
  fields[#fields + 1], fields[#fields + 2] = members[i], texts[i]
end
if new > 0 and redis.call('HLEN', items) + new > request.most then return {'full'} end
redis.call('HSET', items, unpack(fields))
local first, named = redis.call('INCRBY', items_version, #members) - #members, {}
for i = 1, #members do named[i] = string.format('%.0f %s', first + i, members[i]) end
redis.call('LPUSH', items_changes, unpack(named))
redis.call('LTRIM', items_changes, 0, request.changes - 1)
return {'ok'}
