#!lua flags=allow-oom
-- Deletes digests of an actor from the votes and the identities of a board, and records that in its journal.
--
-- The journal receives digests of the digests. When somebody computes from the journal what the board held, this entry
-- deletes the same votes and identities.
-- KEYS meta, slots, journal
-- KEYS parts... — hashes of votes (digest, count), as many as the request says; then sets of identities
-- Request: EraseRequest
-- Returns {'ok', offset}
--@include journal
--@include same_slots
--@include opened
if not same_slots(request.starts or {}) then return {'slots'} end

announce(board)
record(board, 'erase', nil, nil, request.entry)
local digests = request.digests or {}
for i = 4, #KEYS do
  local command = i < 4 + request.rankings and 'HDEL' or 'SREM'
  for first = 1, #digests, 1000 do  -- `unpack` takes only a few thousand values
    call(command, KEYS[i], unpack(digests, first, math.min(first + 999, #digests)))
  end
end
return {'ok', commit(board)}
