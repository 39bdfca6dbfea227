"""A DAG of Airflow: archive what has come, wait until the table is up to date, and build on it.

Put it into Airflow's folder of DAGs, on workers where `leveret` and `dbt` are installed. The variable LEVERET_URL says
where the broker is.
"""

import os

from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.sensors.bash import BashSensor
from airflow.sdk import DAG

LAKE = os.environ.get("ORDERS_LAKE", "/lake/orders")
SCHEMA = os.environ.get("ORDERS_SCHEMA", "/etc/lake/order.ddl")

with DAG("orders", schedule="@hourly", catchup=False, max_active_runs=1, default_args={"retries": 3}) as dag:
    archive = BashOperator(
        task_id="archive",
        bash_command=f"leveret pipeline archive orders {LAKE} --decode json --schema {SCHEMA}",
        append_env=True,
    )
    up_to_date = BashSensor(
        task_id="up_to_date",
        bash_command=f"leveret pipeline lag {LAKE}.checkpoint --max-age 3600",
        poke_interval=60,
        timeout=1800,
        mode="reschedule",
    )
    build = BashOperator(task_id="build", bash_command="dbt build --project-dir /srv/shop", append_env=True)
    archive >> up_to_date >> build
