#!lua flags=allow-oom
-- Finds a session of the admin page, and notes its use if asked to. This works when memory is full, because an operator
-- may need to free memory.
-- KEYS sessions
-- Request: SessionRequest
-- Returns {'ok', session}
--         {'none'} — there is none, or it has ended
local found = redis.call('HGET', sessions, request.name)
if not found then return {'none'} end

local session, now = cjson.decode(found), tonumber(redis.call('TIME')[1])
if now - session.used >= request.idle or now - session.created >= request.longest then
  redis.call('HDEL', sessions, request.name)
  return {'none'}
end
if request.step >= 0 and now - session.used >= request.step then
  session.used = now
  found = cjson.encode(session)
  redis.call('HSET', sessions, request.name, found)
end
return {'ok', found}
