#!lua flags=allow-oom
-- Stores or deletes the definition of a board, if no definition has changed since the caller read them. Adds the entry
-- of the request to the audit log, if there is one, and announces the new version on the channel named as KEYS[1].
-- KEYS[1] definitions — hash: board, its definition as JSON; the field ':version' grows with every change
-- KEYS[2] trail — stream: the audit log
-- KEYS[3] store — string: the identity of the store
-- KEYS[4] changes — list: "version board" of each of the last changes, newest first
-- Request: DefineRequest
-- Returns {'ok', version}
--         {'moved'} — a definition has changed
--         {'lost', identity} — this is another store, or an empty one
local request = cmsgpack.unpack(ARGV[1])
local definitions, trail, store, changes = unpack(KEYS)

local held = redis.call('GET', store) or ''
if request.identity ~= '' and held ~= request.identity then return {'lost', held} end
if (redis.call('HGET', definitions, ':version') or '') ~= request.version then return {'moved'} end
-- The first version is the time, so that a store that has lost its boards does not reach an earlier version again.
local version = tonumber(request.version) or tonumber(redis.call('TIME')[1])
version = string.format('%.0f', version + 1)
if request.entry ~= '' then
  redis.call('XADD', trail, 'MAXLEN', '~', request.length, '*', 'entry', request.entry)
end
redis.call('HSET', definitions, ':version', version)
if request.definition == '' then
  redis.call('HDEL', definitions, request.board)
else
  redis.call('HSET', definitions, request.board, request.definition)
end
redis.call('LPUSH', changes, version .. ' ' .. request.board)
redis.call('LTRIM', changes, 0, request.changes - 1)
redis.call('SPUBLISH', definitions, version)
return {'ok', version}
