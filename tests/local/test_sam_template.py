"""The template is read as it will be deployed."""

from local.sam_template import Route, functions, routes, table, template


def test_the_functions_are_the_handlers_with_their_timeouts() -> None:
    assert {name: (definition.handler, definition.timeout_seconds) for name, definition in functions().items()} == {
        "EnqueueFunction": ("handlers.enqueue.handler", 25),
        "ProcessFunction": ("handlers.process.handler", 80),
        "ReconcileFunction": ("handlers.reconcile.handler", 60),
        "CallbackFunction": ("handlers.callback.handler", 25),
        "NotifyFunction": ("handlers.notify.handler", 60),
        "StatusFunction": ("handlers.status.handler", 28),
    }
    assert [name for name, definition in functions().items() if definition.is_reserved] == ["StatusFunction"]


def test_a_functions_environment_holds_literals_and_the_defaults_of_parameters_and_nothing_unknown() -> None:
    environment = functions()["ProcessFunction"].environment
    assert environment["WINDOW_SECONDS"] == "50"
    assert environment["PARALLEL_TASKS"] == "20"
    assert "TABLE_NAME" not in environment


def test_every_route_leads_to_its_function() -> None:
    callbacks = {Route(method, "/callbacks/{provider}/{token}", "CallbackFunction") for method in ("POST", "GET")}
    task = "/tasks/{provider}/{name}"
    looks = {Route("GET", path, "StatusFunction") for path in ("/tasks", task)}
    asked = f"GET /,POST /tasks,DELETE /tasks,DELETE {task},POST /tasks/revive,POST /tasks/batch"
    asked += ",DELETE /erase,DELETE /erase/{provider}/{name}"
    others = set(routes()) - callbacks - looks
    assert {f"{route.method} {route.path}" for route in others} == set(asked.split(","))
    assert {route.function for route in others} == {"EnqueueFunction"}
    assert callbacks | looks <= set(routes())


def test_short_tags_are_read_as_their_long_forms() -> None:
    assert template()["Outputs"]["TableName"]["Value"] == {"Ref": "Table"}
    assert template()["Conditions"]["InVpc"] == {
        "Fn::Not": [{"Fn::Equals": [{"Fn::Join": ["", {"Ref": "SubnetIds"}]}, ""]}]
    }
    assert table()["KeySchema"][0]["AttributeName"] == "task_id"
