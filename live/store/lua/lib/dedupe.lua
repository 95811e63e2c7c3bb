-- Whether something was counted before. Each writer numbers its batches. An event with an identity is known for as long
-- as the bucket that holds its identity: a bucket covers `span` seconds, and the oldest is dropped when a new one
-- begins.

-- The answer to a batch that this writer has sent before, or that comes too late; nil for a new one.
local function repeated()
  local last = call('HGET', writers, request.writer)
  if not last then return end
  local sequence, offset = string.match(last, '^(%d+) (%d+)')
  sequence = tonumber(sequence)
  if sequence == request.sequence then return {'ok', offset} end
  if sequence > request.sequence then return {'stale'} end
end

-- The start of the newest bucket. Like a slot it never goes backward: the script would overlook an identity in a later
-- one.
local function newest_bucket(held)
  return math.max(math.floor(seconds / request.span) * request.span, held or 0)
end

local known_identities, remember
if identities then
  function known_identities()
    local all, known = identities.all, {'seen'}
    for bucket = 1, #buckets - 1 do
      if call('EXISTS', buckets[bucket]) == 1 then
        local marks = call('SMISMEMBER', buckets[bucket], unpack(all))
        for i = 1, #all do
          if marks[i] == 1 then known[#known + 1] = i end
        end
      end
    end
    if #known > 1 then return known end
  end

  function remember(board)
    local newest = buckets[1]
    if call('EXISTS', newest) == 0 then
      call('UNLINK', buckets[#buckets])
      call('HSET', meta, 'bucket', digits(identities.bucket))
    end
    call('SADD', newest, unpack(identities.all, 1, identities.counted))
    -- in case no later bucket ever replaces it
    call('EXPIREAT', newest, digits(identities.bucket + identities.kept))
  end
end
