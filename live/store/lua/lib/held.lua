-- Step: refuse a correction or a merge if its members no longer hold the values that the caller has read. Another batch
-- may have changed them meanwhile.
if request.held then
  local read = request.held
  if not same_slots(read.starts) then return {'changed'} end
  for i, slot in ipairs(held) do
    local values = call('HMGET', slot, unpack(read.members))
    for j = 1, #read.members do
      if (values[j] or '') ~= read.values[j][i] then return {'changed'} end
    end
  end
end
