"""What AWS asks for: list prices as inputs of `benchmarks.simulate`, in dollars, each with where it was read.

They are of US East (N. Virginia), without free tiers and volume discounts, read on the day below from stored copies of
the pages. Look at the pages themselves before you decide.
"""

from dataclasses import dataclass

REGION = "US East (N. Virginia)"
READ = "December 2026"


@dataclass(frozen=True, slots=True)
class Price:
    """So many dollars for one `unit`; `source` is None where no page was found: then it is from memory."""

    dollars: float
    unit: str
    source: str | None


_LAMBDA = "git.mcrn.ar/mariano/lambda_local_runner (lambda-13-cost.md, May 2026)"
_DURABLE = "aws.amazon.com/lambda/pricing, as quoted in public repositories (September 2026)"
_DYNAMODB = "airbyte.com/data-engineering-resources/dynamodb-pricing (July 2025)"
_VPC = "factualminds.com/blog/amazon-vpc-pricing-endpoints-peering-transit-gateway (June 2026)"
_CLOUDWATCH = "signoz.io/guides/cloudwatch-pricing (February 2026), help-toolz.com"
_ELASTICACHE = "usage.ai/blogs/aws/database-savings-plans/elasticache/serverless-pricing (June 2026)"

PRICES = {
    "lambda request": Price(0.20e-6, "request", _LAMBDA),
    "lambda second": Price(0.0000166667, "GB and second, x86", _LAMBDA),
    "rest api": Price(3.50e-6, "request", "docs.aws.amazon.com, whitepaper on private APIs, table 4"),
    "sqs": Price(0.40e-6, "request", "cloudburn.io/blog/amazon-sqs-pricing (March 2026)"),
    "dynamodb write": Price(0.625e-6, "unit on demand: 1 KB", _DYNAMODB),
    "dynamodb read": Price(0.125e-6, "unit on demand: 4 KB", _DYNAMODB),
    "dynamodb stored": Price(0.25, "GB and month", None),
    "dynamodb recovery": Price(0.20, "GB and month", None),
    "ecpu": Price(0.0023e-6, "ECPU of ElastiCache Serverless for Valkey", _ELASTICACHE),
    "valkey stored": Price(0.084, "GB and hour of the same", _ELASTICACHE),
    "nat hour": Price(0.045, "hour", "basavytix.com/blog/aws-nat-gateway-pricing"),
    "nat traffic": Price(0.045, "GB", "basavytix.com/blog/aws-nat-gateway-pricing"),
    "address hour": Price(0.005, "hour of a public IPv4 address", _VPC),
    "endpoint hour": Price(0.01, "hour of an interface endpoint in one zone", _VPC),
    "secret": Price(0.40, "secret and month", "aws.amazon.com/secrets-manager/pricing (September 2026)"),
    "logs": Price(0.50, "GB taken in", _CLOUDWATCH),
    "metric": Price(0.30, "metric and month", _CLOUDWATCH),
    "trace": Price(5.00e-6, "trace recorded", "aws.amazon.com/de/xray/pricing"),
    "state transition": Price(25.0e-6, "transition, Standard", "aws.amazon.com/step-functions/pricing"),
    "durable operation": Price(8.00e-6, "operation", _DURABLE),
    "durable written": Price(0.25, "GB written", _DURABLE),
}


def dollars(price: str, count: float) -> float:
    """What so many units cost."""
    return PRICES[price].dollars * count
