--@include same_slots
-- Step: refuse a correction or a merge if its members no longer hold the values that the caller has read, or if a renamed
-- member takes over another tag. Another batch may have changed them meanwhile.
if request.held then
  local read = request.held
  if not same_slots(read.starts) then return {'changed'} end
  for i, slot in ipairs(held) do
    local values = call('HMGET', slot, unpack(read.members))
    for j = 1, #read.members do
      if (values[j] or '') ~= read.values[j][i] then return {'changed'} end
    end
  end
  for i = 1, batch.tags and #groups or 0 do
    local group = groups[i]
    local tags = call('HMGET', group.ranking.reached, unpack(group.members))
    local tag = not tags[1] and tags[2] or ''
    if tag ~= batch.tags[group.suffix] then return {'changed'} end
  end
end
