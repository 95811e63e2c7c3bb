#!lua flags=no-writes
-- Reads the fields of a hash, such as definitions, that have changed since the caller read them.
-- KEYS hash — name, JSON; the field ':version' grows with every change, unless there is a counter
-- KEYS changes — list: "version name" of each of the last changes, newest first
-- KEYS counter... — string: grows with every change; none or one
-- Request: ChangesRequest
-- Returns {'ok', version, now, name, value, ...} — a value that was deleted is ''; now in seconds
--         {'gap'} — the list does not reach back to the caller's version: read the whole hash
local counter = KEYS[3]

local version = (counter and {redis.call('GET', counter)} or {redis.call('HGET', hash, ':version')})[1] or ''
local reply = {'ok', version, redis.call('TIME')[1]}
local count = (tonumber(version) or 0) - request.version
if count == 0 then return reply end
-- The list is short. So it is valid only if it reaches back to the caller's version.
local last = count > 0 and redis.call('LINDEX', changes, count - 1)
if not last or tonumber(string.match(last, '^%d+')) ~= request.version + 1 then return {'gap'} end
local named = redis.call('LRANGE', changes, 0, count - 1)
if tonumber(string.match(named[1], '^%d+')) ~= tonumber(version) then return {'gap'} end
local seen = {}
for i = 1, count do
  local name = string.match(named[i], ' (.*)$')
  if not seen[name] then
    seen[name] = true
    reply[#reply + 1], reply[#reply + 2] = name, redis.call('HGET', hash, name) or ''
  end
end
return reply
