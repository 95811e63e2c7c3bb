#!lua flags=no-writes
-- Opens a board in order to read it on a replica: returns its epoch and the state of its clock, and changes nothing.
-- KEYS[1] meta — hash: the board's state
-- Request: OpenReplicaRequest
-- Returns what open.lua returns, but never 'adopt' or 'reign'
local request = cmsgpack.unpack(ARGV[1])
local meta = KEYS[1]
--@include clock
--@include opened
local held = redis.call('HGET', meta, 'epoch')
if request.born and held ~= request.born then return {'epoch', held or ''} end
if not held then return {'none'} end
return opened()
