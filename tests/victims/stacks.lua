-- Each function of this program is on known stacks; it works for 0.4 s of CPU time.
local function leaf(n)
    local x = 0
    for i = 1, n do x = x + i % 7 end
    return x
end

local function middle(n)
    local sum = leaf(n)
    return sum
end

function of_all(n)
    local sum = middle(n)
    return sum
end

local Class = {}
function Class.compare(a, b)
    local x = leaf(300)
    return a < b
end
function Class:sorted(n)
    local list = {}
    for i = 1, n do list[i] = (i * 7919) % 1000 end
    table.sort(list, self.compare)
    return #list
end

while os.clock() < 0.4 do
    of_all(20000)
    Class:sorted(60)
    coroutine.wrap(function()
        middle(20000)
        coroutine.yield()
    end)()
end
print("done")
