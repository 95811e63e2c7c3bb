#!lua
-- Writes elements under a store key beside a board, while the swap that loads them goes on, or under a store key of a
-- fenced board.
-- KEYS meta
-- KEYS name — the store key: a hash, a sorted set, or a set of identities
-- KEYS listed... — set: the store keys beside the board, if this is one
-- Request: LoadRequest
-- Returns {'ok'}
--         {'taken'} — the swap has ended, or has another round: a later round may have written other values
if redis.call('HGET', meta, 'swap') ~= request.swap then return {'taken'} end
if KEYS[3] then redis.call('SADD', KEYS[3], name) end
redis.call(request.command, name, unpack(request.words))
return {'ok'}
