--@include clock
-- Step: find the events of the batch that were counted before. An identity is known as long as the bucket that holds it
-- exists. A bucket covers `span` seconds, and the oldest bucket is deleted when a new one begins.
local latest = batch.latest
local bucket = math.floor(seconds / batch.span) * batch.span  -- the newest bucket
if not fits(request.clock, board.newest, board.latest) or (latest and latest > now + request.future)
  or (identities and bucket ~= identities.bucket) then
  return replan(board.newest, board.latest, digits(bucket))
end

local own = 0  -- how many identities belong to events that the batch counts
if identities then
  local all, known = identities.all, {'seen'}
  own = #all
  for _, refused in ipairs(request.refused or {}) do all[#all + 1] = refused end
  for i = 1, #buckets - 1 do
    if call('EXISTS', buckets[i]) == 1 then
      local marks = call('SMISMEMBER', buckets[i], unpack(all))
      for j = 1, #all do
        if marks[j] == 1 then known[#known + 1] = j end
      end
    end
  end
  if #known > 1 then return known end
end
