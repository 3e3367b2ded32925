package docs

// What blocks of code use, so that go.mod requires it and go test downloads it.
import (
	_ "connectrpc.com/connect"
	_ "github.com/alicebob/miniredis/v2"
	_ "github.com/coder/websocket"
	_ "github.com/gin-gonic/gin"
	_ "github.com/go-chi/chi/v5"
	_ "github.com/go-chi/httprate"
	_ "github.com/go-redis/redis_rate/v10"
	_ "github.com/gofiber/fiber/v3"
	_ "github.com/labstack/echo/v4"
	_ "github.com/sethvargo/go-limiter/httplimit"
	_ "github.com/sethvargo/go-limiter/memorystore"
	_ "github.com/throttled/throttled/v2/store/memstore"
	_ "github.com/ulule/limiter/v3/drivers/middleware/gin"
	_ "github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	_ "github.com/ulule/limiter/v3/drivers/store/memory"
	_ "golang.org/x/time/rate"
	_ "google.golang.org/protobuf/types/known/emptypb"

	_ "github.com/weir-go/weir/store/goredis"
	_ "github.com/weir-go/weir/store/redigo"
	_ "github.com/weir-go/weir/store/rueidis"
	_ "github.com/weir-go/weir/store/valkey"
	_ "github.com/weir-go/weir/weirfile"
	_ "github.com/weir-go/weir/weirgrpc"
)
