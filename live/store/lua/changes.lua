#!lua flags=no-writes
-- Reads the definitions that have changed since the caller read them.
-- KEYS[1] definitions — hash: board, its definition as JSON; the field ':version' grows with every change
-- KEYS[2] changes — list: "version board" of each of the last changes, newest first
-- Request: ChangesRequest
-- Returns {'ok', version, now, board, definition, ...} — a definition that was deleted is ''; now in seconds
--         {'gap'} — the list does not reach back to the caller's version: read all definitions
local request = cmsgpack.unpack(ARGV[1])
local definitions, changes = unpack(KEYS)

local version = redis.call('HGET', definitions, ':version') or ''
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
  local board = string.match(named[i], ' (.*)$')
  if not seen[board] then
    seen[board] = true
    reply[#reply + 1], reply[#reply + 2] = board, redis.call('HGET', definitions, board) or ''
  end
end
return reply
