{{ config(materialized='table') }}
select shop, sum(price) as sold from {{ source('lake', 'orders') }} group by all
