#!lua flags=allow-oom
-- Stores or deletes definitions of boards, if no definition has changed since the caller read them. Adds the entry of
-- the request to the audit log, if there is one, and announces the new version on the channel named as KEYS[1].
-- KEYS definitions, trail, store, changes
-- Request: DefineRequest
-- Returns {'ok', version}
--         {'moved'} — a definition has changed
--         {'lost', identity} — this is another store, or an empty one

local held = redis.call('GET', store) or ''
if request.identity ~= '' and held ~= request.identity then return {'lost', held} end
if (redis.call('HGET', definitions, ':version') or '') ~= request.version then return {'moved'} end
if request.entry ~= '' then
  redis.call('XADD', trail, 'MAXLEN', '~', request.length, '*', 'entry', request.entry)
end
-- The first version is the time, so that a store that has lost its boards does not reach an earlier version again.
local version = tonumber(request.version) or tonumber(redis.call('TIME')[1])
for i, name in ipairs(request.names) do
  version = version + 1
  if request.definitions[i] == '' then
    redis.call('HDEL', definitions, name)
  else
    redis.call('HSET', definitions, name, request.definitions[i])
  end
  redis.call('LPUSH', changes, string.format('%.0f %s', version, name))
end
version = string.format('%.0f', version)
redis.call('HSET', definitions, ':version', version)
redis.call('LTRIM', changes, 0, request.changes - 1)
redis.call('SPUBLISH', definitions, version)
return {'ok', version}
