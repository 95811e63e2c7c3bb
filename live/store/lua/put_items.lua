#!lua
-- Stores items, or none of them if there is no room for the new ones.
-- KEYS[1] items — hash: member, its item as JSON
-- KEYS[2] version — string: grows with every change
-- Request: PutItemsRequest
-- Returns {'ok'}
--         {'full'} — there would be more items than allowed
local request = cmsgpack.unpack(ARGV[1])
local items, version = KEYS[1], KEYS[2]
local members, texts, fields, new = request.members, request.items, {}, 0
for i = 1, #members do
  if redis.call('HEXISTS', items, members[i]) == 0 then new = new + 1 end
  fields[2 * i - 1], fields[2 * i] = members[i], texts[i]
end
if new > 0 and redis.call('HLEN', items) + new > request.most then return {'full'} end
redis.call('HSET', items, unpack(fields))
redis.call('INCR', version)
return {'ok'}
