-- The state of a board: which epoch may change it, and how a change is announced and written.
local call, tonumber, unpack = redis.call, tonumber, unpack  -- locals are found faster

local function read_board()
  local held = call('HMGET', meta, 'epoch', 'offset', 'newest', 'latest', 'bucket', 'frozen', 'made')
  return {
    epoch = held[1], offset = tonumber(held[2] or 0), newest = tonumber(held[3]), latest = tonumber(held[4]),
    bucket = tonumber(held[5]), frozen = held[6], made = held[7],
  }
end

-- The state, or nil and the answer to a caller that knows another epoch.
local function open_board()
  local board = read_board()
  if board.epoch ~= request.epoch then return nil, {'epoch', board.epoch or ''} end
  return board
end

-- The first write of every change: the store may forbid it, and nothing may fail after the first write. Subscribers
-- receive the message when the script has ended.
local function announce(board)
  board.offset = board.offset + 1
  board.place = string.format('%.0f', board.offset)
  call('PUBLISH', request.channel, board.epoch .. ':' .. board.place)
end

-- The last write of every change; takes more fields and their values. Returns the offset.
local function commit(board, ...)
  call('HSET', meta, 'offset', board.place, ...)
  return board.place
end
