#!lua
-- Claims an Idempotency-Key for a body, or stores the response to it. What is already stored stays.
-- KEYS[1] once — hash: the digest of the body, and the response; expires
-- Request: OnceRequest
-- Returns {body, answer} — false where there is none
local request = cmsgpack.unpack(ARGV[1])
local once = KEYS[1]
redis.call('HSETNX', once, request.field, request.content)
redis.call('EXPIRE', once, request.seconds)
return redis.call('HMGET', once, 'body', 'answer')
