"""A real Redis."""

from tests.redisserver import module_redis, redis_server

__all__ = ["module_redis", "redis_server"]
