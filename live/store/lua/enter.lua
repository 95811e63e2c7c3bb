-- Registers a member for a contest, or gives it other metadata; or withdraws one that has no vote.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] entrants — hash: member, JSON
-- KEYS[3] ranking — sorted set: name, score, of the newest period
-- KEYS[4] reached — hash: member, tag
-- Request: EnterRequest
-- Returns {'ok', offset, new} — new is 1 when the member was not registered before, or when it was and is no more
--         {'voted'} — a member that has votes stays
--         {'full'} — as many members are registered as may be
--         {'epoch', epoch} — the board has another epoch; '' for none
local request = cmsgpack.unpack(ARGV[1])
local meta, entrants, ranking, reached = unpack(KEYS)
--@include board
local board, refusal = open_board()
if refusal then return refusal end

local member, metadata = request.member, request.metadata
local held = call('HGET', entrants, member)
if not metadata then
  local name = request.tagged and (call('HGET', reached, member) or '') .. member or member
  if call('ZSCORE', ranking, name) then return {'voted'} end
end
if held == (metadata or false) then return {'ok', string.format('%.0f', board.offset), 0} end
if not held and call('HLEN', entrants) >= request.most then return {'full'} end

announce(board)
if not metadata then
  call('HDEL', entrants, member)  -- first, for when memory is full only what frees some may come first
else
  call('HSET', entrants, member, metadata)
end
return {'ok', commit(board), (not held or not metadata) and 1 or 0}
